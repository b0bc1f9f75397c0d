// Package e2b runs programs with E2B's own packages, unmodified, against this server: natively,
// over an engine whose guests are agents on this host, and with real VMs. It owns the programs
// (testdata) and the pins of the packages' versions. scripts/e2b-sdks.sh fetches the packages once
// from PyPI and npm into .cache/e2b. Without them the tests skip.
package e2b
