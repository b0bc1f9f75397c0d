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
	return qmpRun(c, "quit")
}

// qmpRun performs the handshake and one command without arguments.
func qmpRun(rw io.ReadWriter, command string) error {
	dec := json.NewDecoder(io.LimitReader(rw, 1<<20))
	var greeting qmpReply
	if err := dec.Decode(&greeting); err != nil {
		return fmt.Errorf("read QMP greeting: %w", err)
	}
	if greeting.Greeting == nil {
		return errors.New("read QMP greeting: not QMP")
	}
	for _, name := range []string{"qmp_capabilities", command} {
		if _, err := fmt.Fprintf(rw, "{\"execute\":%q}\n", name); err != nil {
			return fmt.Errorf("send %s: %w", name, err)
		}
		if err := qmpAwait(dec); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func qmpAwait(dec *json.Decoder) error {
	for {
		var r qmpReply
		if err := dec.Decode(&r); err != nil {
			return err
		}
		switch {
		case r.Error != nil:
			return errors.New(r.Error.Desc)
		case r.Return != nil:
			return nil
		}
	}
}
