package e2b

import "os"

// Versions of E2B's packages in the tests: three generations (docs/use/e2b.md). scripts/e2b-sdks.sh
// installs the same versions.
var (
	pythonVersions = versions("2.45.1", "2.55.0", "2.63.0")
	nodeVersions   = versions("2.45.0", "2.51.0")
	// The newest versions also build templates.
	newestPython = pythonVersions[len(pythonVersions)-1]
	newestNode   = nodeVersions[len(nodeVersions)-1]
)

// today selects the newest versions. A soak runs them to detect a release that breaks forkd.
const today = "newest"

func versions(pinned ...string) []string {
	if os.Getenv("FORKD_E2B_VERSIONS") == today {
		return []string{today}
	}
	return pinned
}
