"""The simulated results of the page's benchmark are as grids of networks are."""

from bench import report


def test_layers_are_less_alike_the_further_apart_they_are():
    rows = report.joint(2, report.MEASURES[0], whole=False)
    own = rows[rows["label_x"] == rows["label_y"]]
    distance = (own["layer_x"].astype(int) - own["layer_y"].astype(int)).abs()
    means = own.groupby(distance)["value"].mean()
    assert means[0] == 1
    assert means[1] > means[report.LAYERS // 2] > means[report.LAYERS - 1] > 0
