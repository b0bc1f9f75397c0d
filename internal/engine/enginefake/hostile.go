package enginefake

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// keep makes the VMM keep files open that it should close.
func keep(f *fake, files ...*os.File) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, file := range files {
		fd, err := unix.Dup(int(file.Fd()))
		if err != nil {
			return err
		}
		f.kept = append(f.kept, os.NewFile(uintptr(fd), "kept"))
	}
	return nil
}

// scribble overwrites all kept files, and returns how many of them were writable.
func scribble(f *fake) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	written := 0
	for _, file := range f.kept {
		if _, err := file.WriteAt(make([]byte, 64<<10), 0); err == nil {
			written++
		}
	}
	return fmt.Sprint(written)
}
