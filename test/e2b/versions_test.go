package e2b

import "os"

// Versions of E2B's packages that the tests run: three generations (docs/use/e2b.md). They are the
// ones that scripts/e2b-sdks.sh installs.
var (
	pythonVersions = versions("2.45.1", "2.55.0", "2.63.0")
	nodeVersions   = versions("2.45.0", "2.51.0")
	// The newest build templates, too.
	newestPython = pythonVersions[len(pythonVersions)-1]
	newestNode   = nodeVersions[len(nodeVersions)-1]
)

// today stands for the versions of the day, which a soak runs so that a release of theirs that breaks something is
// known.
const today = "newest"

func versions(pinned ...string) []string {
	if os.Getenv("FORKD_E2B_VERSIONS") == today {
		return []string{today}
	}
	return pinned
}
