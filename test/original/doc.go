// Package original has the clients of the original forkd, unmodified from PyPI, speak to this daemon's
// API over the fake engine: forkd 0.5.3 (class Controller). scripts/original-sdk.sh installs it into
// .cache/original; without it the tests skip. What the clients send and expect is held row by row in
// internal/api/httpapi/original_test.go, which needs no package.
package original
