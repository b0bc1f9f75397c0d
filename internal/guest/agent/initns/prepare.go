package initns

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/forkd/forkd/internal/guest/agent/identity"
)

// prepare writes the files below root that the init reads at its start.
func prepare(root string, systemd bool) error {
	if err := writeBootID(root); err != nil {
		return err
	}
	if systemd {
		return fillMachineID(filepath.Join(root, "etc", "machine-id"))
	}
	return nil
}

// writeBootID makes the agent's file with the boot id of now, if there is none. The init's /proc gets it as a mount, and
// so shows the boot id of each clone.
func writeBootID(root string) error {
	id, err := os.ReadFile(filepath.Join(root, identity.KernelBootID))
	if err != nil {
		return fmt.Errorf("read boot id: %w", err)
	}
	name := filepath.Join(root, identity.BootIDFile)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write boot id: %w", err)
	}
	_, err = f.Write(id)
	return errors.Join(err, f.Close())
}

// fillMachineID writes a random machine id into an empty file. systemd takes an empty one for the first boot of a new
// system, and would enable and ask for things. A clone gets an id of its own, with its identity.
func fillMachineID(name string) error {
	old, err := os.ReadFile(name)
	if text := string(bytes.TrimSpace(old)); err != nil || text != "" && text != "uninitialized" {
		return nil // systemd makes a missing file itself
	}
	var id [16]byte
	_, _ = rand.Read(id[:])
	if err := os.WriteFile(name, []byte(hex.EncodeToString(id[:])+"\n"), 0o444); err != nil {
		return fmt.Errorf("write machine id: %w", err)
	}
	return nil
}
