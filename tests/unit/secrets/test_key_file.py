"""The file of the master keys: private, whole, and never without a key that was in it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from noetl.secrets.encryption import KeyRingError, MasterKey
from noetl.secrets.key_file import add_key, read_key_file


def test_the_key_that_was_added_last_is_the_current_one(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "keys"
    keys = [MasterKey.random() for _ in range(3)]
    for key in keys:
        add_key(path, key)
    assert [key.key_id for key in read_key_file(path).keys] == [key.key_id for key in reversed(keys)]
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(each.name for each in path.parent.iterdir()) == ["keys", "keys.lock"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_can_reach_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "keys"
    add_key(path, MasterKey.random())
    path.chmod(mode)
    with pytest.raises(KeyRingError, match="chmod 600"):
        read_key_file(path)
    with pytest.raises(KeyRingError, match="chmod 600"):
        add_key(path, MasterKey.random())
    path.chmod(0o400)
    assert len(read_key_file(path).keys) == 1


def test_a_missing_file_a_folder_and_nonsense_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(KeyRingError, match="--add-key"):
        read_key_file(tmp_path / "keys")
    with pytest.raises(KeyRingError, match="cannot be read"):
        read_key_file(tmp_path)
    nonsense = tmp_path / "nonsense"
    nonsense.write_text("no key\n")
    nonsense.chmod(0o600)
    with pytest.raises(KeyRingError, match="line 1"):
        read_key_file(nonsense)
    with pytest.raises(KeyRingError, match="line 1"):
        add_key(nonsense, MasterKey.random())
    assert nonsense.read_text() == "no key\n"


def test_keys_that_are_added_at_once_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    keys = [MasterKey.random() for _ in range(8)]
    threads = [threading.Thread(target=add_key, args=(path, key)) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {key.key_id for key in read_key_file(path).keys} == {key.key_id for key in keys}
