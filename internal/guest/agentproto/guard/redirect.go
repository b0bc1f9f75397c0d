package guard

import "net/http"

// Proxied checks an agent's answer before it is passed on to a client. It returns a Violation for a
// redirect: by following it, a client would send its key to a route chosen by the guest. It removes
// headers with effects on the whole host name.
func Proxied(resp *http.Response) error {
	if err := notRedirect(resp); err != nil {
		return err
	}
	for _, name := range []string{"Alt-Svc", "Clear-Site-Data", "Refresh", "Set-Cookie", "Strict-Transport-Security"} {
		resp.Header.Del(name)
	}
	return nil
}

// notRedirect returns a Violation for a redirect, because the agent has no redirects. Status 304
// (not modified) does not count as a redirect.
func notRedirect(resp *http.Response) error {
	if resp.StatusCode < 300 || resp.StatusCode >= 400 || resp.StatusCode == http.StatusNotModified {
		return nil
	}
	return violation("a redirect, status %d", resp.StatusCode)
}
