"""Optional columns of a trace: request class, open microphone, and job."""
