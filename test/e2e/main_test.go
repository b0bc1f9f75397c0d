package e2e

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

func TestMain(m *testing.M) {
	if os.Getpid() == 1 {
		beInit() // guests of these tests boot this binary
	}
	code := m.Run()
	if err := theWorld.close(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: after all tests:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// parentTag is the parent of all tests: Python with NumPy.
const parentTag = "parent"

// parentWarm prepares the parent before its snapshot. By the hook a fork's request can make chosen
// children fail, or end their VM.
const parentWarm = `
import os, random, socket, ssl, subprocess, tempfile, time, uuid
colour = "none"
numpy.random.seed(1); random.seed(1); ssl.RAND_bytes(1)
import forkd_guest; forkd_guest.reseed_globals()
warm_random, warm_rng, warm_state = random.Random(1), numpy.random.default_rng(1), [numpy.random.RandomState(1)]
warm_philox = numpy.random.RandomState(numpy.random.Philox(1))
subprocess.run(["sudo", "sh", "-c", """mkdir -p /etc/forkd/fork.d && cat > /etc/forkd/fork.d/50-e2e && chmod 755 /etc/forkd/fork.d/50-e2e"""], input=b"""#!/bin/sh
case " $E2E_FAIL " in *" $FORKD_INDEX "*) echo told to fail; exit 3;; esac
case " $E2E_DIE " in *" $FORKD_INDEX "*) echo o > /proc/sysrq-trigger; sleep 30;; esac
""", check=True)
`

// world is the shared state of the tests.
type world struct {
	once   sync.Once
	err    error
	dir    string
	daemon *daemon

	sandboxOnce sync.Once // for oneSandbox
	sandboxID   string

	smallOnce sync.Once // for small
	smallTag  string
}

var theWorld world

// shared returns the shared daemon. It has the snapshot parentTag.
func shared(t *testing.T) *daemon {
	t.Helper()
	kvmtest.Require(t)
	theWorld.once.Do(func() { theWorld.err = theWorld.open(t) })
	if theWorld.err != nil {
		t.Fatalf("start of the shared daemon: %v", theWorld.err)
	}
	theWorld.daemon.t = t
	return theWorld.daemon
}

func (w *world) open(t *testing.T) (err error) {
	if w.dir, err = harness.TempDir(prefix); err != nil {
		return err
	}
	w.daemon = newDaemon(t, w.dir)
	w.daemon.Flags = []string{"--identity-issuer", issuerURL}
	if err := harness.PythonImage(t, w.daemon.images()); err != nil {
		return err
	}
	if err := putImage(t, w.daemon.images(), "box", imageFiles{}); err != nil {
		return err
	}
	w.daemon.start()
	_, err = w.daemon.c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: parentTag, Image: "python-numpy", Warm: parentWarm}, func(s api.Step) {
		if s.Done {
			t.Logf("parent: %s took %.0f ms", s.Step, s.TookMS)
		}
	})
	return err
}

// prefix begins the names of the daemons' directories. It is short because sockets are below them.
const prefix = "e2e"

// close stops the daemon and returns an error for leftovers.
func (w *world) close() error {
	if w.daemon == nil {
		return nil
	}
	defer os.RemoveAll(w.dir)
	return w.daemon.Finish()
}
