"""Cards of published figures and numbers, one file each."""
