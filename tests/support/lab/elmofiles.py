"""A small ELMo in the published format, of random weights."""

import json

import h5py
import numpy as np

SMALL = {
    "char_cnn": {
        "activation": "relu",
        "embedding": {"dim": 4},
        "filters": [[1, 4], [2, 4], [3, 8]],
        "max_characters_per_token": 9,
        "n_characters": 261,
        "n_highway": 2,
    },
    "lstm": {
        "cell_clip": 0.6,
        "dim": 12,
        "n_layers": 2,
        "proj_clip": 0.3,
        "projection_dim": 6,
        "use_skip_connections": True,
    },
}


def changed(**changes):
    """Return the small options with some of them changed, ``lstm_dim=5`` in section lstm."""
    options = json.loads(json.dumps(SMALL))
    for name, value in changes.items():
        section, _, key = name.partition("_")
        options["char_cnn" if section == "cnn" else section][key] = value
    return options


def write_elmo(folder, options, seed=0):
    """Write options and weights as bilm-tf does, of a known random state."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tiny_options.json").write_text(json.dumps(options))
    rng, weights = np.random.default_rng(seed), {}

    def draw(name, *shape):
        weights[name] = rng.normal(0, 0.4, shape).astype(np.float32)

    cnn, lstm = options["char_cnn"], options["lstm"]
    width, cell = lstm["projection_dim"], lstm["dim"]
    count = sum(number for _, number in cnn["filters"])
    draw("char_embed", 261, cnn["embedding"]["dim"])
    for number, (size, filters) in enumerate(cnn["filters"]):
        draw(f"CNN/W_cnn_{number}", 1, size, cnn["embedding"]["dim"], filters)
        draw(f"CNN/b_cnn_{number}", filters)
    for number in range(cnn["n_highway"] or 0):
        for gate in ("carry", "transform"):
            draw(f"CNN_high_{number}/W_{gate}", count, count)
            draw(f"CNN_high_{number}/b_{gate}", count)
    if count != width:
        draw("CNN_proj/W_proj", count, width)
        draw("CNN_proj/b_proj", width)
    for direction in (0, 1):
        for layer in range(lstm["n_layers"]):
            place = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            draw(f"{place}/W_0", 2 * width, 4 * cell)
            draw(f"{place}/B", 4 * cell)
            if width < cell:
                draw(f"{place}/W_P_0", cell, width)
    with h5py.File(folder / "tiny_weights.hdf5", "w") as file:
        for name, values in weights.items():
            file[name] = values
    return {name: values.astype(np.float64) for name, values in weights.items()}
