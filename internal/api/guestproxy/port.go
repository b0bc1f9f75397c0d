package guestproxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/api/apierror"
	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/leaf/duplex"
)

// ConnectPort joins the client with a TCP port of a guest, as a byte stream. The values id and port of the request's
// pattern name the sandbox and the port.
func ConnectPort(w http.ResponseWriter, r *http.Request, guests sandbox.Guests) error {
	port, err := strconv.ParseUint(r.PathValue("port"), 10, 16)
	switch {
	case err != nil || port == 0:
		return apierror.New(api.CodeInvalid, "", "port %s: want 1 to 65535", r.PathValue("port"))
	case !wantsUpgrade(r):
		return apierror.New(api.CodeInvalid, "", "want the headers Connection: Upgrade and Upgrade: %s", api.UpgradeTCP)
	}
	guest, err := guests.DialPort(r.Context(), r.PathValue("id"), uint16(port))
	if err != nil {
		return err
	}
	defer guest.Close()
	c, rest, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return fmt.Errorf("take over the connection: %w", err)
	}
	defer c.Close()
	const answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + api.UpgradeTCP + "\r\n\r\n"
	if _, err := io.WriteString(c, answer); err != nil {
		return nil // the client has disconnected
	}
	early, _ := rest.Reader.Peek(rest.Reader.Buffered())
	duplex.Join(r.Context(), &hijacked{c, early}, guest)
	return nil
}

func wantsUpgrade(r *http.Request) bool {
	listed := false
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Connection"), ","), ",") {
		listed = listed || strings.EqualFold(strings.TrimSpace(part), "Upgrade")
	}
	return listed && strings.EqualFold(r.Header.Get("Upgrade"), api.UpgradeTCP)
}

// hijacked is a connection with some bytes already read. Its reads bypass the server's reader,
// which would end the request's context at a half-close.
type hijacked struct {
	net.Conn
	early []byte
}

func (h *hijacked) Read(p []byte) (int, error) {
	if len(h.early) > 0 {
		n := copy(p, h.early)
		h.early = h.early[n:]
		return n, nil
	}
	return h.Conn.Read(p)
}

// CloseWrite closes the sending direction.
func (h *hijacked) CloseWrite() error {
	half, ok := h.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}
