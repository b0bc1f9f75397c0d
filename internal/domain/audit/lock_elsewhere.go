//go:build !unix

package audit

import "os"

// lock does nothing: the daemon does not run on this system.
func lock(*os.File) error { return nil }
