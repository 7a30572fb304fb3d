"""The page about clients says what was seen, and what was seen must be what it says."""

import pytest
from tests.client_table import DEEDS, ClientTables


@pytest.fixture
def seen() -> ClientTables:
    tables = ClientTables()
    tables.add(("kubectl", "Waiting", "kubectl 1.37"), passed=True)
    tables.add(("kubectl", "Waiting", "kubectl 1.20"), passed=False)
    tables.add(("client", DEEDS["watch"], "kr8s 0.20"), passed=True)
    tables.add(("client", DEEDS["typed"], "lightkube 1.0"), passed=True)
    return tables


def test_what_is_written_is_read_again(seen):
    assert seen.differences(ClientTables.read(seen.text())) == []


def test_what_was_tried_by_hand_is_kept(seen):
    text = seen.text()
    assert "\n## Tried by hand\n" in text
    assert ClientTables.read(text).text() == text


def test_one_failed_test_makes_the_field_a_no(seen):
    seen.add(("client", DEEDS["watch"], "kr8s 0.20"), passed=False)
    seen.add(("client", DEEDS["watch"], "kr8s 0.20"), passed=True)
    assert f"| {DEEDS['watch']} | **no** |  |" in seen.text()


def test_fields_that_a_run_did_not_see_are_no_difference(seen):
    part = ClientTables()
    part.add(("kubectl", "Waiting", "kubectl 1.37"), passed=True)
    assert part.differences(ClientTables.read(seen.text())) == []


def test_missing_and_different_cells_of_a_page_are_named(seen):
    part = ClientTables()
    part.add(("kubectl", "Waiting", "kubectl 1.20"), passed=True)
    part.add(("kubectl", "Waiting", "kubectl 1.40"), passed=True)
    differences = part.differences(ClientTables.read(seen.text()))
    assert differences == [
        "kubectl 1.20: Waiting: yes, but docs/clients.md says **no**",
        "kubectl 1.40: Waiting: yes, but docs/clients.md says nothing",
    ]


def test_rows_come_in_the_order_of_what_clients_do(seen):
    text = seen.text()
    assert text.index(DEEDS["typed"]) < text.index(DEEDS["watch"])
