"""An authority that makes certificates, by the openssl command."""

import os
import subprocess


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


class Authority:
    """Makes certificates in a folder."""

    def __init__(self, folder, name="ca"):
        folder.mkdir(exist_ok=True)
        self.folder, self.key, self.certificate = folder, folder / f"{name}.key", folder / f"{name}.pem"
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", self.key, "-out", self.certificate, "-days",
                "2", "-subj", f"/CN={name}")

    def issue(self, name, to=None, days=2):
        """(certificate, key), in files that replace older ones at once; of no days: expired."""
        to = to or name
        request, key, certificate = (self.folder / f"{name}.{end}.new" for end in ("csr", "key", "pem"))
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", f"/CN={name}",
                "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
        openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-out", certificate, "-days",
                days, "-copy_extensions", "copy")
        os.chmod(key, 0o600)
        os.replace(key, self.folder / f"{to}.key")
        os.replace(certificate, self.folder / f"{to}.pem")
        return self.folder / f"{to}.pem", self.folder / f"{to}.key"
