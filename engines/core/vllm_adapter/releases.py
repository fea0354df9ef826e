"""What differs between the releases of vLLM that the adapter runs on, asked of what is installed: never its number."""

try:
    from vllm.v1.core.kv_cache_planning import (  # pyright: ignore[reportMissingImports]
        _get_kv_cache_groups_uniform_page_size as groups_of_one_page_size,
    )
except ImportError:  # before planning had a module of its own
    from vllm.v1.core.kv_cache_utils import (
        _get_kv_cache_groups_uniform_page_size as groups_of_one_page_size,
    )

__all__ = ["groups_of_one_page_size"]
