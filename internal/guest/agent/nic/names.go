package nic

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/forkd/forkd/internal/leaf/guestnet"
)

// resolvConf returns a file with the gateway, which is the only name server that a guest can reach.
// It always answers soon, so the timeout is short: after a lost answer, an application asks again
// soon.
func resolvConf() []byte {
	return fmt.Appendf(nil, "nameserver %s\noptions edns0 timeout:2 attempts:2\n", guestnet.Gateway4)
}

// WriteResolvConf writes file, normally /etc/resolv.conf. It replaces a link, because a program of
// the image may write to its target.
func WriteResolvConf(file string) error {
	want := resolvConf()
	st, err := os.Lstat(file)
	if err == nil && !st.Mode().IsRegular() {
		if err := os.Remove(file); err != nil {
			return fmt.Errorf("replace %s: %w", file, err)
		}
	}
	if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, want) {
		return nil // avoids a useless write to the disk
	}
	err = os.MkdirAll(filepath.Dir(file), 0o755) // an initramfs has no /etc
	if err == nil {
		err = os.WriteFile(file, want, 0o644)
	}
	if err != nil {
		return fmt.Errorf("name the name server: %w", err)
	}
	return nil
}
