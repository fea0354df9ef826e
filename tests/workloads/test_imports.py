import subprocess
import sys


def test_workloads_import_no_engine() -> None:
    code = (
        "import sys, rehearsal.workloads.registry, rehearsal.workloads.describe;"
        "ours = ('rehearsal.engines', 'rehearsal.harness', 'rehearsal.reports');"
        "print(sorted({'.'.join(m.split('.')[: 1 + m.startswith('rehearsal.')]) for m in sys.modules}"
        " & {'torch', 'vllm', *ours}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
