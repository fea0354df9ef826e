"""Which recordings and public data sets are at hand, and what `rehearse data` could bring; without the network."""

from pathlib import Path

from harness.doctor.check import Check, version
from workloads.audio.library import audio_files
from workloads.errors import UserError
from workloads.files.hub import Dataset, datasets
from workloads.optional import install_command


def checks(folder: Path | None) -> list[Check]:
    """What is in `folder`, or what could be fetched; UserError when it is no readable folder."""
    if folder is None:
        return [_fetchable(), _recordings(None)]
    try:
        if not folder.is_dir():
            what = "is a file" if folder.exists() else "does not exist"
            raise UserError(f"--data {folder} {what}; give a folder of recordings or data sets.")
        sizes = {path.name: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    except OSError as error:
        raise UserError(
            f"--data {folder} cannot be read: {error.strerror}; give a readable folder."
        ) from None
    sets = [_data_set(name, dataset, sizes, folder) for name, dataset in datasets().items()]
    return [*sets, _recordings(folder)]


def _fetchable() -> Check:
    sizes = {name: sum(file.bytes for file in dataset.files) for name, dataset in datasets().items()}
    listed = ", ".join(
        f"{name} ({size / 1e6:,.0f} MB)" if size else f"{name} (rows)" for name, size in sizes.items()
    )
    why = f"generated workloads need none; `rehearse data fetch NAME --out DIR` brings {listed}"
    if version("huggingface_hub") is None:
        why += f", after {install_command('data')}"
    return Check("data", "data sets", "not needed", f"{why}; --data DIR looks into a folder")


def _data_set(name: str, dataset: Dataset, sizes: dict[str, int], folder: Path) -> Check:
    """By the names of its files; a part of one is data, too, and its size says that it is a part."""
    wanted = dataset.kept
    lacking = [file for file in wanted if file not in sizes]
    if lacking:
        why = f"no {', '.join(lacking)}; `rehearse data fetch {name} --out {folder}`"
        return Check("data", name, "not needed" if len(lacking) == len(wanted) else "missing", why)
    found = [
        file if size in (None, sizes[file]) else f"{file} ({sizes[file] / 1e6:,.1f} of {size / 1e6:,.1f} MB)"
        for file, size in wanted.items()
    ]
    return Check("data", name, "ok", ", ".join(found))


def _recordings(folder: Path | None) -> Check:
    hint = "workload speech then synthesises speech; `rehearse data speech --from debian --out DIR`"
    if folder is not None:
        try:
            return Check("data", "recordings", "ok", f"{len(audio_files(folder)):,} files in {folder}")
        except UserError:
            return Check("data", "recordings", "not needed", f"none in {folder}; {hint}")
    return Check("data", "recordings", "not needed", f"no folder given; {hint}")
