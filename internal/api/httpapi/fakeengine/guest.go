package fakeengine

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/guest/agent/services"
	"github.com/forkd/forkd/internal/guest/agentproto/agentv1/agentv1connect"
	"github.com/forkd/forkd/internal/guest/agentproto/filesystem/filesystemconnect"
	"github.com/forkd/forkd/internal/guest/agentproto/process/processconnect"
)

// guest is an agent's HTTP server over connections in memory.
type guest struct {
	server *http.Server
	disk   *disk
	door   *door
	ended  chan struct{}
	stop   context.CancelFunc

	services *services.Supervisor
	once     sync.Once
}

// newGuest returns a guest with a copy of a disk, or with an empty one for nil.
func newGuest(env map[string]string, from *disk) *guest {
	ctx, stop := context.WithCancel(context.Background())
	g := &guest{door: &door{conns: make(chan net.Conn), closed: make(chan struct{})},
		ended: make(chan struct{}), stop: stop}
	g.services = newServices()
	disk := newDisk()
	if from != nil {
		disk = from.clone()
	}
	g.disk = disk
	mux := http.NewServeMux()
	mux.Handle(processconnect.NewProcessHandler(&processes{env: env, ctx: ctx, running: map[uint32]*running{}}))
	mux.Handle(filesystemconnect.NewFilesystemHandler(disk))
	mux.Handle(agentv1connect.NewInventoryHandler(inventory{d: disk}))
	g.services.AddRoutes(mux)
	mux.HandleFunc("GET /files", disk.download)
	mux.HandleFunc("POST /files", disk.upload)
	mux.HandleFunc("POST /files/link", disk.makeLink)
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	g.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() {
		_ = g.server.Serve(g.door)
		close(g.ended)
	}()
	return g
}

func (g *guest) dial() (net.Conn, error) {
	// TCP instead of a pipe, for real half-closed connections and buffers.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, err
	}
	far, err := l.Accept()
	if err != nil {
		near.Close()
		return nil, err
	}
	select {
	case g.door.conns <- far:
		return near, nil
	case <-g.door.closed:
		near.Close()
		far.Close()
		return nil, errors.New("guest has ended")
	}
}

// close ends the server and every program. It may be called twice.
func (g *guest) close() {
	g.once.Do(func() {
		_ = g.server.Close() // first: a dead VM does not close its connections cleanly
		<-g.ended
		g.stop()
		g.services.Close()
	})
}

// door is the listener of a guest's server.
type door struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (d *door) Accept() (net.Conn, error) {
	select {
	case c := <-d.conns:
		return c, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

func (d *door) Close() error {
	d.once.Do(func() { close(d.closed) })
	return nil
}

func (d *door) Addr() net.Addr { return &net.UnixAddr{Name: "guest", Net: "unix"} }
