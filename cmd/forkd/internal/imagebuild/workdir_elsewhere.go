//go:build !unix

package imagebuild

import "os"

// flock does nothing: directories of killed processes stay on this system.
func flock(*os.File) (free bool, err error) { return false, nil }
