from corral.reconcile.expectations import EXPIRY_SECONDS, Expectations


class Time:
    now = 0.0

    def __call__(self):
        return self.now


def test_creations_are_counted_and_deletions_tracked_by_uid():
    expectations = Expectations[str](Time())
    assert expectations.unmet_seconds("a") == 0
    expectations.expect("a", creations=2, deletions=["x"])
    expectations.creation_observed("a")
    expectations.deletion_observed("a", "other")
    assert expectations.unmet_seconds("a") == EXPIRY_SECONDS
    expectations.creation_observed("a")
    assert expectations.unmet_seconds("a") > 0
    expectations.deletion_observed("a", "x")
    assert expectations.unmet_seconds("a") == 0
    assert expectations.unmet_seconds("b") == 0


def test_no_expectations_are_satisfied():
    expectations = Expectations[str](Time())
    expectations.expect("a", creations=1)
    expectations.expect("a")
    assert expectations.unmet_seconds("a") == 0


def test_expectations_expire_after_five_minutes():
    time = Time()
    expectations = Expectations[str](time)
    expectations.expect("a", creations=1)
    time.now = 299
    assert expectations.unmet_seconds("a") == 1
    time.now = 300
    assert expectations.unmet_seconds("a") == 0


def test_expectations_of_a_deleted_object_are_dropped():
    expectations = Expectations[str](Time())
    expectations.expect("a", creations=1)
    expectations.forget("a")
    assert expectations.unmet_seconds("a") == 0
