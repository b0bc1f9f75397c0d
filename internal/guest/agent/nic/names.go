package nic

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/forkd/forkd/internal/leaf/guestnet"
)

// resolvConf names the gateway: it is the only name server that a guest reaches, whatever the
// image says. It answers in any case, and soon, so that an application which waits for an
// answer that was lost asks again soon.
func resolvConf() []byte {
	return fmt.Appendf(nil, "nameserver %s\noptions edns0 timeout:2 attempts:2\n", guestnet.Gateway4)
}

// WriteResolvConf writes file, normally /etc/resolv.conf. A link, which may lead to what a
// program of the image would write, is replaced.
func WriteResolvConf(file string) error {
	want := resolvConf()
	st, err := os.Lstat(file)
	if err == nil && !st.Mode().IsRegular() {
		if err := os.Remove(file); err != nil {
			return fmt.Errorf("replace %s: %w", file, err)
		}
	}
	if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, want) {
		return nil // not a write to the disk for nothing
	}
	err = os.MkdirAll(filepath.Dir(file), 0o755) // an initramfs has none
	if err == nil {
		err = os.WriteFile(file, want, 0o644)
	}
	if err != nil {
		return fmt.Errorf("name the name server: %w", err)
	}
	return nil
}
