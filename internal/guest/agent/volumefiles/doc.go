// Package volumefiles serves the files of mounted volumes to the host (package volumewire). It acts as root,
// because a volume may hold files of any user, and stays below the mount point: package os resolves each path
// within it, and refuses a link that leads out. A client of a volume thus reaches no other file of the sandbox.
package volumefiles
