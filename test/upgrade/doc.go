// Package upgrade is the black-box suite for an upgrade: a daemon of release 0.1.0 makes snapshots
// and sandboxes, its programs are replaced, and today's daemon takes them over. scripts/old-release.sh
// builds the old programs. `make test-upgrade` runs the suite.
package upgrade
