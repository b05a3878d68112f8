"""`bench`: a few numbers, and nothing left behind."""

from tests.cli.program import Program


def test_a_bench_measures_beside_the_store_and_leaves_nothing(program: Program) -> None:
    document = program.expect(0, "bench", "--seconds", "0.1", "--json").document()
    assert len(document["findings"]) == 4
    assert all(finding["messages_per_second"] > 0 for finding in document["findings"])
    assert "not the comparison suite" in document["note"]
    assert list(program.folder.iterdir()) == []


def test_a_bench_shows_a_table_and_says_what_it_is_not(program: Program) -> None:
    ended = program.expect(0, "bench", "--seconds", "0.05")
    assert len(ended.lines()) == 5
    assert "not the comparison suite" in ended.err


def test_a_bench_needs_a_folder(program: Program) -> None:
    assert program.expect(3, "bench", "--store", "no/such/a.db").err.startswith("error[store_missing]: ")
