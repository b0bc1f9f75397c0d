package fetcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/forkd/forkd/internal/store/hub"
	"github.com/forkd/forkd/internal/store/layer"
	"github.com/forkd/forkd/internal/sys/durable"
	"github.com/forkd/forkd/internal/sys/filelock"
	"golang.org/x/sys/unix"
)

// idleTime is the time until a process without work ends.
const idleTime = 30 * time.Second

// Run serves until the process has no work or ctx ends. Only one process can serve a directory.
func Run(ctx context.Context, c Config) error {
	lock, err := os.OpenFile(filepath.Join(c.Dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := filelock.Try(lock); err != nil {
		return fmt.Errorf("fetch into %s: %w", c.Dir, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	all := &files{cfg: c, ctx: ctx, rest: make(chan struct{}, 1), by: map[layer.ID]*entry{},
		logins: readLogins(c.Dir), used: time.Now()}
	if err := all.load(); err != nil {
		return err
	}
	server, err := mount(c.Mount, all)
	if err != nil {
		return fmt.Errorf("mount %s: %w", c.Mount, err)
	}
	err = all.serve(ctx)
	cancel()
	all.wg.Wait()
	for _, e := range all.by {
		err = errors.Join(err, e.file.Save())
	}
	if busy := server.Unmount(); busy != nil { // open files fail from now on
		_ = unix.Unmount(c.Mount, unix.MNT_DETACH)
	}
	return err
}

// serve answers at the socket.
func (fs *files) serve(ctx context.Context) error {
	path := filepath.Join(fs.cfg.Dir, socketName)
	_ = os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /add", handle(func(r addRequest) error {
		if err := fs.add(r.ID, r.Logins); err != nil {
			return err
		}
		return fs.saveLogins()
	}))
	mux.HandleFunc("POST /start", handle(func(r startRequest) error {
		fs.start(r.IDs)
		return nil
	}))
	mux.HandleFunc("GET /files", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(fs.states())
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	fs.tend(ctx, idleTime)
	err = s.Close()
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// handle decodes a request and answers with the error's text.
func handle[T any](do func(T) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var req T
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&req)
		if err == nil {
			err = do(req)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		}
	}
}

// saveLogins keeps the credentials for the next process. The run directory is memory, and only the daemon's user reads
// it. Credentials of files that are not missing any more are dropped.
func (fs *files) saveLogins() error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	keep := map[string][]hub.Login{}
	for id, l := range fs.logins {
		if e := fs.by[id]; e != nil && !e.file.Progress().Complete {
			keep[id.String()] = l
		}
	}
	b, err := json.Marshal(keep) // #nosec G117 -- the file is the fetcher's own, in the run directory
	if err != nil {
		return err
	}
	return durable.Replace(filepath.Join(fs.cfg.Dir, loginsName), b)
}

func readLogins(dir string) map[layer.ID][]hub.Login {
	out := map[layer.ID][]hub.Login{}
	b, err := durable.ReadFile(filepath.Join(dir, loginsName), 16<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return out
	}
	var all map[string][]hub.Login
	if err != nil || json.Unmarshal(b, &all) != nil {
		return out
	}
	for name, l := range all {
		if id, err := layer.ParseID(name); err == nil {
			out[id] = l
		}
	}
	return out
}
