// Package original runs the clients of the original forkd, unmodified from PyPI, against this
// daemon's API over the fake engine: forkd 0.5.3 (class Controller). scripts/original-sdk.sh
// installs it into .cache/original. Without it the tests skip.
// internal/api/httpapi/original_test.go tests the clients' requests and expected answers row by
// row, without the package.
package original
