"""The program that is searched: a small neural network, trained in steps. It runs in the sandbox's interpreter."""
import numpy as np

rng = np.random.default_rng(7)  # its state is copied by each branch, so equal steps give equal results
x = rng.uniform(-3, 3, (512, 2))
y = (np.sin(2 * x[:, :1]) * np.cos(x[:, 1:])) + 0.05 * rng.normal(size=(512, 1))
train, valid = slice(0, 384), slice(384, 512)
weights = [rng.normal(size=(2, 48)), np.zeros(48), rng.normal(size=(48, 1)) / 7, np.zeros(1)]
momentum = [np.zeros_like(w) for w in weights]


def forward(inputs):
    hidden = np.tanh(inputs @ weights[0] + weights[1])
    return hidden, hidden @ weights[2] + weights[3]


def loss():
    """Returns the mean squared error on data that training does not see."""
    return float(np.mean((forward(x[valid])[1] - y[valid]) ** 2))


def fit(rate, epochs):
    """Trains for some epochs, and returns the loss."""
    for _ in range(epochs):
        batch = rng.choice(384, 128, replace=False)
        hidden, out = forward(x[batch])
        error = 2 * (out - y[batch]) / len(batch)
        back = error @ weights[2].T * (1 - hidden ** 2)
        slopes = [x[batch].T @ back, back.sum(0), hidden.T @ error, error.sum(0)]
        for w, m, s in zip(weights, momentum, slopes):
            m *= 0.9
            m -= rate * s
            w += m
    return loss()
