#!/usr/bin/env python3
"""test_metrics_page.py - what Prometheus' own checker says of the metrics, also of those of a store in etcd, and the page
in a real browser.

DDPRUN_SCREENSHOT=FILE keeps a picture of the page, as in docs/metrics-page.png.
"""

import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'lib'))
from ddprun_run import wait_until
from ddprund_run import DdprundCase
from etcd_cluster import ETCD, Cluster
from nodes import free_port
from skip import skip_program

WORKER = '''
for step in 1 2 3; do echo "rank $RANK: step $step, loss 0.$((9 - step))" >&2; done
if [ "$RANK" = 5 ] && [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; then
    until [ -e fail ]; do sleep 0.02; done
    echo "RuntimeError: <b>loss</b> is NaN" >&2; exit 3
fi
until [ -e end ]; do sleep 0.02; done
'''


class PageCase(DdprundCase):
    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.addCleanup((self.folder / 'end').touch)

    def get(self, path):
        server = http.client.HTTPConnection('127.0.0.1', self.port)
        try:
            server.request('GET', path)
            return server.getresponse().read().decode()
        except ConnectionRefusedError:
            return ''
        finally:
            server.close()

    def status(self, condition):
        return wait_until(lambda: (text := self.get('/status.json')) and (status := json.loads(text)) and
                          condition(status) and status, 'the status')

    def job(self, endpoint=None):
        """Three nodes, one of which is spare, after a failure."""
        endpoint = endpoint or f'127.0.0.1:{free_port()}'
        jobs = []
        for node in range(3):
            words = [f'--metrics-listen={self.port}'] if node == 0 else []
            jobs.append(self.start('--nnodes=2', '--nproc-per-node=4', '--max-restarts=3', '--rdzv-id=train',
                                   '--lease=10m', f'--rdzv-endpoint={endpoint}', f'--node-rank={node}', *words,
                                   'sh', '-c', WORKER))
            self.status(lambda status, node=node: len(status['job'].get('nodes', [])) == node + 1)
        self.status(lambda status: status['job'].get('generation') == 1 and
                    sum(len(node['workers']) for node in status['job']['nodes']) == 8)
        (self.folder / 'fail').touch()
        self.status(lambda status: status['job'].get('generation') == 2 and status['timeline'][0]['running_ms'] and
                    sum(len(node['workers']) for node in status['job']['nodes']) == 8)
        return jobs

    def end(self, jobs):
        (self.folder / 'end').touch()
        for job in jobs:
            job.wait()


@unittest.skipUnless(ETCD, 'etcd is missing (Debian package etcd-server)')
class Prometheus(PageCase):
    def setUp(self):
        super().setUp()
        (self.folder / 'etcd').mkdir()
        etcd = Cluster(self.folder / 'etcd')
        self.addCleanup(etcd.close)
        self.store = self.serve(f'--state={etcd.address()}', '--state-lease=60s')
        self.store.read_until('leading as')

    def metrics(self):
        """Those of a job whose store says that three machines keep it, too."""
        machines = [{'endpoint': f'n{number}:1', 'state': 'member', 'life': 1} for number in range(3)]
        self.done(self.store.endpoints[0], 'set', 'store/keepers', json.dumps({'leader': 'n0:1', 'machines': machines}))
        jobs = self.job(f'{self.store.endpoints[0]},127.0.0.1:9') # who lists one endpoint does not look
        metrics = self.get('/metrics')
        self.end(jobs)
        self.stop(self.store)
        return metrics

    @unittest.skipUnless(shutil.which('promtool'), 'promtool is missing (Debian package prometheus)')
    def test_what_its_checker_says(self):
        metrics = self.metrics()
        done = subprocess.run(['promtool', 'check', 'metrics'], input=metrics, text=True, capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, '', ''), metrics)
        self.assertIn('ddprun_restarts_total{reason="failure"} 1', metrics)
        self.assertIn('ddprun_etcd_request_seconds_bucket{le="+Inf"}', metrics)

    def test_the_dashboard_asks_for_metrics_that_exist(self):
        """Each name in docs/grafana.json is one that ddprun has."""
        metrics = self.metrics()
        known = set(re.findall(r'^# TYPE (\S+)', metrics, re.M))
        known |= {f'{name}_{part}' for name in known for part in ('bucket', 'sum', 'count')}
        dashboard = json.loads((Path(__file__).resolve().parents[2] / 'docs/grafana.json').read_text())
        asked = {name for panel in dashboard['panels'] for target in panel.get('targets', ())
                 for name in re.findall(r'ddprun_\w+', target['expr'])}
        self.assertGreater(len(asked), 10)
        self.assertEqual(asked - known, set())


def find_browser():
    return shutil.which('chromium') or shutil.which('chromium-browser') or shutil.which('google-chrome')


@unittest.skipUnless(find_browser(), 'Chromium is missing (Debian package chromium)')
class Page(PageCase):
    def browse(self, *words):
        """Chromium's virtual time passes as fast as the page's requests are answered."""
        done = subprocess.run([find_browser(), '--headless', '--no-sandbox', '--disable-gpu', '--hide-scrollbars',
                               '--disable-dev-shm-usage', '--window-size=1100,540', f'--user-data-dir={self.folder}/browser',
                               '--virtual-time-budget=6000', *words, f'http://127.0.0.1:{self.port}/'],
                              capture_output=True, text=True, check=False,
                              env={**os.environ, 'HOME': str(self.folder), 'TMPDIR': str(self.folder)})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_what_a_browser_shows(self):
        jobs = self.job()
        html = self.browse('--dump-dom')
        self.assertIn('<h1 id="title">job train is running</h1>', html)
        self.assertEqual(len(re.findall(r'class="rank running"', html)), 8)
        self.assertIn('spare', html)
        self.assertRegex(html, r'rank 5 failed|rank 5')
        self.assertIn('step 3, loss 0.6', html)
        self.assertIn('<p id="problem"></p>', html)
        self.assertNotIn('<b>loss</b>', html)  # what a worker prints stays text
        picture = Path(os.environ.get('DDPRUN_SCREENSHOT', self.folder / 'page.png'))
        self.browse(f'--screenshot={picture}')
        self.assertEqual(picture.read_bytes()[:8], b'\x89PNG\r\n\x1a\n')
        self.end(jobs)


if __name__ == '__main__':
    if not shutil.which('promtool') or not find_browser():
        skip_program('promtool (Debian package prometheus) or Chromium (Debian package chromium) is missing')
    unittest.main()
