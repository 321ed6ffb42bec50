# SPDX-License-Identifier: GPL-2.0-only
"""What ends a run whose QEMU goes on after the guest has ended, with a program in place of QEMU."""

import pytest

from kit.vm import guest

QEMU = """for word; do
case $word in
file:*.console) echo "$LAST" > "${word#file:}" ;;
file:*.ktap) printf 'TAP version 13\\n1..1\\nok 1 x\\nEND 0\\n' > "${word#file:}" ;;
esac
done
exec sleep 60"""


@pytest.mark.parametrize("last, problems", [
    ("[    1.296846] reboot: Power down", []),
    ("[    1.296846] reboot: Restarting system", ["the guest printed END and did not power off"])])
def test_qemu_that_does_not_end(tmp_path, monkeypatch, capsys, last, problems):
    """That QEMU goes on is no problem of a guest that has powered off, but it is said."""
    monkeypatch.setattr(guest, "OFF_SECONDS", 0.5)
    result = guest.watch(["sh", "-c", QEMU, "sh"], {"LAST": last}, tmp_path / "run", 30)
    assert (result.ended, result.status, result.problems) == (True, 0, problems)
    assert ("has powered off, and QEMU has not ended" in capsys.readouterr().out) == (not problems)
