//go:build !unix

package seal

import "os"

// lock is empty: the daemon does not run on this system.
func lock(*os.File) error { return nil }

// giveTo is empty: the daemon does not run on this system.
func giveTo(*os.File, string) error { return nil }
