// Package sftpcmd is an SFTP server as a program in the guest. The host starts it like any other
// program, as the user of an SSH session (package sshbridge of the CLI), so the kernel checks each
// access to a file. It speaks SFTP version 3 on standard input and output
// (draft-ietf-secsh-filexfer-02).
package sftpcmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/pkg/sftp"

	"github.com/forkd/forkd/internal/guest/agentproto"
)

// Install makes the program available in a guest at boot. program is the path of the agent's
// binary for all users.
func Install(program string) error {
	err := os.Symlink(program, agentproto.SFTPProgram)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return err
}

// Run runs the server until its input ends, if name is the program's name. It returns false for
// other names.
func Run(name string) (exit int, known bool) {
	if filepath.Base(name) != filepath.Base(agentproto.SFTPProgram) {
		return 0, false
	}
	// Relative paths begin at home. The library's own option for this makes the targets of links absolute.
	_ = os.Chdir(os.Getenv("HOME"))
	if err := serve(stdio{os.Stdin, os.Stdout}); err != nil {
		fmt.Fprintln(os.Stderr, "forkd-sftp:", err)
		return 1, true
	}
	return 0, true
}

// stdio is standard input and output as one stream.
type stdio struct {
	io.Reader
	io.WriteCloser
}

// serve answers requests until the stream ends.
func serve(stream io.ReadWriteCloser) error {
	s, err := sftp.NewServer(stream)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Serve(); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("serve SFTP: %w", err)
	}
	return nil
}
