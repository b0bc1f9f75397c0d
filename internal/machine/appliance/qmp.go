package appliance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// qmpReply has the used fields of QEMU's answers.
type qmpReply struct {
	Greeting *json.RawMessage `json:"QMP"`
	Return   *json.RawMessage `json:"return"`
	Event    string           `json:"event"`
	Error    *struct {
		Desc string `json:"desc"`
	} `json:"error"`
}

// qmpQuit makes QEMU exit immediately; it writes its caches first.
func (a *Appliance) qmpQuit(ctx context.Context) error {
	c, err := a.dialSocket(ctx, qmpSocket)
	if err != nil {
		return fmt.Errorf("dial QMP: %w", err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	_, err = qmpRun(c, qmpCommand{Execute: "quit"})
	return err
}

// qmpCommand is a command for QEMU.
type qmpCommand struct {
	Execute   string            `json:"execute"`
	Arguments map[string]string `json:"arguments,omitempty"`
}

// qmpRun performs the handshake and one command. It returns the command's result.
func qmpRun(rw io.ReadWriter, command qmpCommand) (result json.RawMessage, err error) {
	dec := json.NewDecoder(io.LimitReader(rw, 1<<20))
	var greeting qmpReply
	if err := dec.Decode(&greeting); err != nil {
		return nil, fmt.Errorf("read QMP greeting: %w", err)
	}
	if greeting.Greeting == nil {
		return nil, errors.New("read QMP greeting: not QMP")
	}
	for _, one := range []qmpCommand{{Execute: "qmp_capabilities"}, command} {
		if err := json.NewEncoder(rw).Encode(one); err != nil {
			return nil, fmt.Errorf("send %s: %w", one.Execute, err)
		}
		if result, err = qmpAwait(dec); err != nil {
			return nil, fmt.Errorf("%s: %w", one.Execute, err)
		}
	}
	return result, nil
}

func qmpAwait(dec *json.Decoder) (json.RawMessage, error) {
	for {
		var r qmpReply
		if err := dec.Decode(&r); err != nil {
			return nil, err
		}
		switch {
		case r.Error != nil:
			return nil, errors.New(r.Error.Desc)
		case r.Return != nil:
			return *r.Return, nil
		}
	}
}
