package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/forkd/forkd/internal/vm/vmctl/wire"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// ask sends a request and waits for its answer, at most until ctx ends.
func (p *Process) ask(ctx context.Context, r *wire.Request, result any) error {
	if err := p.tryAsk(ctx, r, result); err != nil {
		return fmt.Errorf("%s VM: %w", r.Op, err)
	}
	return nil
}

func (p *Process) tryAsk(ctx context.Context, r *wire.Request, result any) error {
	if len(r.Files) > wire.MaxFiles { // before so many files are opened
		return fmt.Errorf("%w: %d descriptors, want at most %d", wire.ErrLimit, len(r.Files), wire.MaxFiles)
	}
	lent, err := lend(r.Files)
	if err != nil {
		return err
	}
	defer lent.close()
	m, table, err := r.Message()
	if err != nil {
		return err
	}
	files := lent.files
	if table != nil {
		defer table.Close()
		files = append(files, table)
	}
	a, err := p.call(ctx, m, files)
	if err != nil || result == nil {
		return err
	}
	return json.Unmarshal(a.Body, result)
}

// call sends a message and waits for its answer.
func (p *Process) call(ctx context.Context, m wire.Message, files []*os.File) (a wire.Message, err error) {
	answer, err := p.register(&m)
	if err != nil {
		return a, err
	}
	if err := p.conn.Send(ctx, m, files...); err != nil {
		p.mu.Lock()
		delete(p.pending, m.ID) // the request was not sent
		p.mu.Unlock()
		return a, p.sendError(ctx, err)
	}
	select {
	case a, ok := <-answer:
		switch {
		case !ok:
			return a, vmm.ErrGone
		case a.Error != nil:
			return a, a.Error.Err()
		}
		return a, nil
	case <-ctx.Done():
		p.giveUp(m.ID)
		return a, context.Cause(ctx)
	}
}

// register numbers a request and creates the channel for its answer.
func (p *Process) register(m *wire.Message) (<-chan wire.Message, error) {
	answer := make(chan wire.Message, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return nil, vmm.ErrGone
	}
	p.nextID++
	m.ID = p.nextID
	p.pending[m.ID] = answer
	return answer, nil
}

func (p *Process) sendError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, wire.ErrLimit):
		return err
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		return err
	case errors.Is(err, wire.ErrStuck): // the reader ends the VM when it finds the connection closed
		p.condemn(err)
	}
	return fmt.Errorf("%w (%w)", vmm.ErrGone, err)
}

// giveUp abandons a sent request. Its answer will still arrive.
func (p *Process) giveUp(id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending[id] != nil {
		delete(p.pending, id)
		p.late++
	}
}

func connect(dir string) (*wire.Conn, error) {
	addr := &net.UnixAddr{Name: filepath.Join(dir, ControlSocket), Net: "unixpacket"}
	c, err := net.DialUnix("unixpacket", nil, addr)
	if err != nil {
		return nil, fmt.Errorf("connect to VMM in %s: %w", dir, err)
	}
	return wire.NewConn(c)
}
