import subprocess
import sys


def test_workloads_import_no_engine() -> None:
    code = (
        "import sys, workloads.registry, workloads.describe;"
        "print(sorted({m.split('.')[0] for m in sys.modules}"
        " & {'torch', 'vllm', 'engines', 'harness', 'reports'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
