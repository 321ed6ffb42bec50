# SPDX-License-Identifier: GPL-2.0-only
"""One bare-metal AMD EPYC server, on which the packages of a kernel with cache-aware scheduling are built.

Instructions:
Wait until `/mydata/packages.log` ends with `packages: done`, or `packages: failed`. Then follow `HARDWARE.md` in
`/mydata/repository`: install the packages, boot the patched kernel, and run the three commands.
"""
# A profile of CloudLab: a person pastes it into "Create Experiment Profile". Runs with Python 2.7 and 3.

import geni.portal as portal
import geni.rspec.pg as pg

try:
    from shlex import quote
except ImportError:
    from pipes import quote

# Types of CloudLab with EPYC, as public profiles and papers name them. show-nodetype.php of the cluster has the facts.
HARDWARE = [
    ("r6615", "r6615 (Clemson): 32 cores, EPYC 9354P"),
    ("r6525", "r6525 (Clemson): 2 x 32 cores, EPYC 7543"),
    ("d6515", "d6515 (Utah): 32 cores, EPYC 7452"),
    ("c6525-100g", "c6525-100g (Utah): 24 cores, EPYC 7402P"),
    ("c6525-25g", "c6525-25g (Utah): 16 cores, EPYC 7302P"),
]
IMAGE = "urn:publicid:IDN+emulab.net+image+emulab-ops//UBUNTU24-64-STD"

# Services run at each boot. The build is not for the boot of the kernel that it has made.
BUILD = """cd /mydata && [ ! -e packages.log ] || exit 0
exec > packages.log 2>&1
{ apt-get -q update; apt-get -q -y install git make python3 &&
git clone -- {repository} repository && cd repository &&
make deb CONFIG=/boot/config-$(uname -r); } && echo packages: done || echo packages: failed
"""

portal.context.defineParameter(
    "repository", "Git URL of the patches", portal.ParameterType.STRING, "",
    longDescription="The repository that has HARDWARE.md. The server must be able to clone it without a password.")
portal.context.defineParameter("hardware", "Hardware type", portal.ParameterType.NODETYPE, HARDWARE[0][0], HARDWARE)
portal.context.defineParameter(
    "image", "Disk image", portal.ParameterType.IMAGE, IMAGE,
    longDescription="URN of an image of Debian 13, Debian 12 or Ubuntu for x86-64.")
portal.context.defineParameter("disk", "Space for the build in GB", portal.ParameterType.INTEGER, 100)
params = portal.context.bindParameters()
if not params.repository:
    portal.context.reportError(portal.ParameterError("The Git URL of the patches is missing.", ["repository"]))
portal.context.verifyParameters()

request = portal.context.makeRequestRSpec()
node = request.RawPC("node")
node.hardware_type = params.hardware
node.disk_image = params.image
space = node.Blockstore("space", "/mydata")
space.size = "%dGB" % params.disk
# Any disk of the server.
space.placement = "any"
script = BUILD.replace("{repository}", quote(params.repository))
node.addService(pg.Execute(shell="sh", command="sudo sh -c " + quote(script)))
portal.context.printRequestRSpec()
