"""Python looks seldom for cycles of garbage, from before a command is imported."""

import json
import subprocess
import sys

from corral import python_gc


def printed(code: str) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_what_a_command_imports_is_not_searched_for_garbage():
    begun, searches = printed(
        "import contextlib, gc, json, sys\n"
        "from corral.cli.main import main\n"
        "sys.argv = ['corral', 'up', '--help']\n"
        "before = sum(each['collections'] for each in gc.get_stats()[1:])\n"
        "with contextlib.suppress(SystemExit):\n"
        "    main()\n"
        "import corral.daemon.run\n"
        "after = sum(each['collections'] for each in gc.get_stats()[1:])\n"
        "print()\n"
        "print(json.dumps([gc.get_threshold()[0], after - before]))\n"
    )
    assert begun == python_gc.THRESHOLD
    assert searches <= 1  # more than twenty where Python chooses


def test_existing_objects_are_frozen_without_a_collection():
    spared, left, searches = printed(
        "import gc, json\n"
        "from corral import python_gc as garbage\n"
        "garbage.raise_threshold()\n"
        "import corral.daemon.run\n"
        "before = gc.get_stats()[2]['collections']\n"
        "garbage.freeze()\n"
        "after = gc.get_stats()[2]['collections']\n"
        "print(json.dumps([gc.get_freeze_count(), len(gc.get_objects()), after - before]))\n"
    )
    assert spared > 100_000
    assert left < 1000
    assert searches == 0
