"""Names that a host can have, before anybody looks them up."""

import pytest

from harness.live.endpoints.target import TargetParams
from workloads.errors import UserError, validate
from workloads.host_names import check_host

LONGEST = "a." * 126 + "a"  # 253 characters


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "fe80::1%eth0", "bücher.example", "a.b.", "a" * 63, LONGEST])
def test_addresses_and_other_scripts_are_taken(host: str) -> None:
    check_host(host)


@pytest.mark.parametrize(
    "host", ["a" * 64, "a" * 300, "a..b", ".a", "é" * 60, "xn--é", "a\0b", "a b", "\u2028", LONGEST + "."]
)
def test_what_no_host_is_called_is_a_usage_error(host: str) -> None:
    with pytest.raises(ValueError, match=r"names no machine: .*; correct it"):
        check_host(host)
    for name in ("url", "scrape", "text_url"):
        with pytest.raises(UserError) as error:
            validate(TargetParams, {"url": "ws://localhost/v1/realtime", name: f"http://{host}/v1"}, "live")
        assert len(str(error.value)) < 400
