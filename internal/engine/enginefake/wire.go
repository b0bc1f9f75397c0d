package enginefake

import (
	"fmt"
	"os"
	"path/filepath"
)

// noteNet appends a line about the VM's network to a file in the fake VM's token directory.
func (f *fake) noteNet(what string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := fmt.Sprintf("net-%d", os.Getpid())
	out, err := os.OpenFile(filepath.Join(f.tokens, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	_, err = fmt.Fprintln(out, what)
	return err
}

// takeWire keeps the VM's newest wire, and records this.
func (f *fake) takeWire(what string, wire *os.File) error {
	f.mu.Lock()
	if f.wire != nil {
		f.wire.Close()
	}
	f.wire = wire
	f.mu.Unlock()
	return f.noteNet(what)
}

// restoredWire keeps the wire of a restore.
func (f *fake) restoredWire(wire *os.File) error {
	if wire == nil {
		return nil
	}
	return f.takeWire("restored", wire)
}
