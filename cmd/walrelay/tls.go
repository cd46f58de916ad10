package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// kafkaTLS builds the brokers' TLS configuration from the files as they are now.
func (s *Settings) kafkaTLS() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.KafkaTLSServerName.Text}
	if file := s.KafkaTLSCAFile.Text; file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the authorities: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", file)
		}
	}
	if file := s.KafkaTLSCertFile.Text; file != "" && s.KafkaTLSKeyFile.Text != "" {
		pair, err := tls.LoadX509KeyPair(file, s.KafkaTLSKeyFile.Text)
		if err != nil {
			return nil, fmt.Errorf("read the client certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
