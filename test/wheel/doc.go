// Package wheel tests the Python wheel with forkd's programs in a clean Debian that has Python, but no Go and no make
// (`make test-wheel`).
package wheel
