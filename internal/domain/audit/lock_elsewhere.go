//go:build !unix

package audit

import "os"

// lock does nothing: no daemon runs here.
func lock(*os.File) error { return nil }
