"""The generated data set."""

import hashlib
import time

import numpy as np

from trainables import shapes10


def test_sizes_and_types(shapes: dict[str, np.ndarray]) -> None:
    assert shapes["x_train"].shape == (10_000, 32, 32, 3)
    assert shapes["x_test"].shape == (2_000, 32, 32, 3)
    assert shapes["x_train"].dtype == shapes["x_test"].dtype == np.uint8
    assert shapes["y_train"].dtype == shapes["y_test"].dtype == np.int64


def test_each_class_is_equally_frequent_and_the_order_is_mixed(
    shapes: dict[str, np.ndarray],
) -> None:
    assert np.bincount(shapes["y_train"]).tolist() == [1_000] * 10
    assert np.bincount(shapes["y_test"]).tolist() == [200] * 10
    assert len(np.unique(shapes["y_train"][:100])) == 10


def test_fast_and_the_same_every_time(shapes: dict[str, np.ndarray]) -> None:
    started = time.process_time()  # the processor's time: other processes do not count
    again = shapes10.generate()
    assert time.process_time() - started < 3
    assert all(np.array_equal(shapes[name], again[name]) for name in shapes)


def test_no_image_occurs_twice(shapes: dict[str, np.ndarray]) -> None:
    images = [*shapes["x_train"], *shapes["x_test"]]
    assert len({hashlib.sha256(i.tobytes()).digest() for i in images}) == 12_000


def test_colour_alone_tells_little(shapes: dict[str, np.ndarray]) -> None:
    """The class whose mean colour is nearest is right about as often as chance (10 %)."""
    mean = shapes["x_train"].mean((1, 2))
    centres = np.stack([mean[shapes["y_train"] == label].mean(0) for label in range(10)])
    distance = ((shapes["x_test"].mean((1, 2))[:, None] - centres) ** 2).sum(2)
    assert (distance.argmin(1) == shapes["y_test"]).mean() < 0.2
