package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/confine/landlock"
	"github.com/forkd/forkd/internal/confine/seccomp"
	"github.com/forkd/forkd/internal/confine/selfbox"
	"github.com/forkd/forkd/internal/sys/linux"
)

// dropPrivileges drops all capabilities in every thread, permanently. The daemon chooses the user.
func dropPrivileges() error {
	if err := selfbox.NoNewPrivileges(); err != nil {
		return err
	}
	return selfbox.Keep(0, 0)
}

// certificates are the paths of the system's certificates in package crypto/x509, for its supported
// distributions. It reads them at the first verification.
var certificates = []string{
	"/etc/ssl/certs", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem", "/etc/pki/tls/certs", "/etc/pki/tls/cacert.pem",
	"/etc/pki/ca-trust/extracted", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates",
	"/var/lib/ca-certificates",
}

// files returns the paths to open while forkd-net serves: certificates, and the folders of its log
// and its socket.
func (o *options) files() (open []selfbox.Path) {
	for _, name := range append(certificates, os.Getenv("SSL_CERT_FILE")) {
		if name != "" {
			open = append(open, selfbox.Path{Name: name, Rights: landlock.ReadTree})
		}
	}
	for name := range strings.SplitSeq(os.Getenv("SSL_CERT_DIR"), ":") {
		if name != "" {
			open = append(open, selfbox.Path{Name: name, Rights: landlock.ReadTree})
		}
	}
	if o.log != "" {
		open = append(open, selfbox.Path{Name: filepath.Dir(o.log), Rights: landlock.Append})
	}
	return append(open, selfbox.Path{Name: filepath.Dir(o.control), Rights: landlock.Remove})
}

// confine permanently drops all rights not needed for serving, and describes the result. If this
// host does not support a protection, confine reports it and continues without it. forkd-net has no
// capabilities in any case.
func (o *options) confine(open []selfbox.Path) (lost string, err error) {
	mode := seccomp.Mode(o.sandbox)
	if mode == seccomp.Off {
		return "no sandbox, as --sandbox off says", nil
	}
	if err := limit(); err != nil {
		return "", err
	}
	var unsupported *linux.Unsupported
	version, err := selfbox.Files(open...)
	switch {
	case errors.As(err, &unsupported):
		lost = fmt.Sprintf("no rules for files: %v", err)
	case err != nil:
		return "", err
	default:
		lost = fmt.Sprintf("landlock %d", version)
	}
	switch err := install(mode); {
	case errors.As(err, &unsupported), errors.Is(err, unix.EPERM):
		lost += fmt.Sprintf(", no filter of system calls: %v", err)
	case err != nil:
		return "", err
	default:
		lost += fmt.Sprintf(", filter of system calls: %s", mode)
	}
	return lost, nil
}

// install installs the filter of system calls. It must be the last step.
func install(mode seccomp.Mode) error {
	if runtime.GOARCH != "amd64" {
		return &linux.Unsupported{Feature: "the list of system calls for " + runtime.GOARCH, Err: unix.ENOSYS}
	}
	return seccomp.Net.Install(mode, seccomp.AllThreads)
}

// logLimit is the maximum size of a file written by forkd-net. It is for the messages; the audit
// log stays far smaller.
const logLimit = 1 << 30

// limit sets resource limits. The process cannot raise them again.
func limit() error {
	for resource, most := range map[int]uint64{
		unix.RLIMIT_CORE: 0, unix.RLIMIT_MEMLOCK: 0, unix.RLIMIT_FSIZE: logLimit,
	} {
		var old unix.Rlimit
		err := unix.Getrlimit(resource, &old)
		if err == nil {
			most = min(most, old.Max)
			err = unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most})
		}
		if err != nil {
			return fmt.Errorf("set limit %d: %w", resource, err)
		}
	}
	return nil
}
