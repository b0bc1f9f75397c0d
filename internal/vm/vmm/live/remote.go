package live

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/vm/vmm"
)

// Layers that have not arrived are files of a FUSE file system (internal/images/fetcher). If their content cannot be
// fetched within the daemon's limit, reads fail. A guest does not learn of it: KVM repeats a failed page fault for
// ever, and a disk's error leaves a half-dead system. So the machine asks for the state of these files, with statfs,
// and ends when it is an error.

// remoteEvery is the interval of the questions.
const remoteEvery = time.Second

// remotes are the files of a machine that may still have to be fetched.
type remotes struct {
	files []*os.File
	stop  chan struct{} // closed by end
	watch sync.WaitGroup
}

// keep duplicates the files of a restore that have not arrived.
func (r *remotes) keep(c vmm.RestoreConfig) error {
	for _, f := range c.Served() {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("watch a layer that has not arrived: %w", err)
		}
		r.files = append(r.files, os.NewFile(uintptr(fd), f.Name()))
	}
	return nil
}

// start calls end with the reason when content has failed to arrive.
func (r *remotes) start(end func(vmm.Exit)) {
	if len(r.files) == 0 {
		return
	}
	r.stop = make(chan struct{})
	r.watch.Go(func() {
		for {
			select {
			case <-r.stop:
				return
			case <-time.After(remoteEvery):
			}
			if why := r.failed(); why != "" {
				end(vmm.Exit{Kind: vmm.ExitFault, Reason: why})
				return
			}
		}
	})
}

// failed returns the reason if a file has failed.
func (r *remotes) failed() string {
	for _, f := range r.files {
		var st unix.Statfs_t
		switch err := unix.Fstatfs(int(f.Fd()), &st); {
		case err == nil, errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EIO):
			return "the rest of its snapshot did not arrive in time"
		default:
			return fmt.Sprintf("the process that fetches the rest of its snapshot has ended (%v)", err)
		}
	}
	return ""
}

// end ends the questions and closes the files.
func (r *remotes) end() {
	if r.stop != nil {
		close(r.stop)
		r.watch.Wait()
	}
	closeFiles(r.files)
}
