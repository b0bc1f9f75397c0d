package kube

import "net/http"

// dead answers no request.
func dead(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		c.Close()
	}
}
