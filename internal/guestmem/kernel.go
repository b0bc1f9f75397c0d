package guestmem

import "os"

// Kernel are files by which the kernel is asked about memory. A process that cannot open them
// when it needs them, as in a jail, is given them ahead.
type Kernel struct {
	Pagemap     *os.File // this process's /proc/self/pagemap; nil: it is opened
	Userfaultfd *os.File // /dev/userfaultfd; nil: by the system call, which takes a right
}

// Use has the memory ask the kernel by these files, which stay the caller's. It is called before
// the memory is used.
func (m *Map) Use(k Kernel) { m.kernel = k }
