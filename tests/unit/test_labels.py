from table_queue_exporter.labels import LABEL_BYTES, LabelSets, cut_label


def test_values_are_cut_on_a_character_boundary() -> None:
    assert cut_label("x" * 128) == "x" * 128
    assert cut_label("x" * 129) == "x" * 128
    assert cut_label("x" + "🚚" * 40) == "x" + "🚚" * 31, "31 × 4 + 1 bytes; half a truck is none"
    assert cut_label("ü" * 1000) == "ü" * 64
    assert len(cut_label("a\u0301" * 100).encode()) <= LABEL_BYTES


def test_the_first_types_keep_their_labels_and_the_rest_is_summed() -> None:
    labels = LabelSets("q", 10, 2)
    assert labels.label((None, "a")) == ("q", "a")
    assert labels.label((None, "b")) == ("q", "b")
    assert not labels.types_limited("q")
    assert labels.label((None, "c")) == ("q", "_other")
    assert labels.label((None, "a")) == ("q", "a"), "sticky"
    assert labels.task_types("q") == ["a", "b", "_other"]
    assert labels.types_limited("q")


def test_a_type_that_is_called_other_makes_no_second_series() -> None:
    labels = LabelSets("q", 10, 2)
    for name in ("_other", "a", "b"):
        labels.label((None, name))
    assert labels.task_types("q") == ["_other", "a"], "the same series twice is a broken page"


def test_long_values_with_the_same_beginning_take_one_label() -> None:
    labels = LabelSets("q", 10, 1)
    assert labels.label((None, "x" * 200 + "1")) == labels.label((None, "x" * 200 + "2"))
    assert not labels.types_limited("q")


def test_each_queue_of_a_table_has_its_own_types() -> None:
    labels = LabelSets("jobs", 2, 1)
    assert labels.queues() == ["jobs"], "before any is known"
    assert labels.label(("mail", "a")) == ("jobs/mail", "a")
    assert labels.label(("sms", "b")) == ("jobs/sms", "b")
    assert labels.label(("fax", "c")) == ("jobs/_other", "c")
    assert labels.label(("telex", "d")) == ("jobs/_other", "_other")
    assert labels.queues() == ["jobs/mail", "jobs/sms", "jobs/_other"]
    assert labels.queues_limited
    assert labels.task_types("jobs/mail") == ["a"]
    assert not labels.types_limited("jobs/mail")


def test_a_queue_without_types_is_one_series() -> None:
    labels = LabelSets("q", 10, 2)
    assert labels.task_types("q") == [None]
    assert labels.label((None, None)) == ("q", None)
    assert labels.task_types("q") == [None]
