"""The bill of materials that the wheel carries: CycloneDX, where PEP 770 puts it."""

from __future__ import annotations

import hashlib
import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from email.parser import HeaderParser
from importlib.metadata import version
from pathlib import Path
from typing import Final

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

_NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_DNS, "hvdtune.sbom")


@dataclass(frozen=True)
class BuiltFrom:
    """A package of which parts are compiled into the wheel; of PyPI unless `kind` says else."""

    name: str
    version: str
    part: str
    kind: str = "pypi"


def toolchain(compiler: Sequence[str]) -> list[BuiltFrom]:
    """What every library of the wheel has of the compiler and of pybind11."""
    command = [*compiler, "-dumpfullversion"]
    number = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    return [
        BuiltFrom("gcc", number, "pieces of libstdc++ and libgcc, linked statically", "generic"),
        BuiltFrom("pybind11", version("pybind11"), "headers"),
    ]


def write(wheel: Path, built_from: Sequence[BuiltFrom], epoch: int) -> Path:
    """Write the bill of an unpacked wheel into its .dist-info/sboms."""
    (facts,) = wheel.glob("*.dist-info")
    metadata = HeaderParser().parsestr((facts / "METADATA").read_text())
    name, number = metadata["Name"], metadata["Version"]
    components = [_component(each) for each in built_from]
    components += [_file(path, wheel) for path in sorted(wheel.rglob("*.so"))]
    product = Component(
        name=name,
        version=number,
        type=ComponentType.LIBRARY,
        bom_ref=f"pkg:pypi/{name}@{number}",
        purl=PackageURL("pypi", name=name, version=number),
        description=metadata["Summary"],
        licenses=[LicenseExpression(metadata["License-Expression"])],
    )
    bom = Bom(
        components=components,
        metadata=BomMetaData(
            component=product, timestamp=datetime.fromtimestamp(epoch, timezone.utc)
        ),
    )
    bom.register_dependency(product, components)
    texts = "".join(sorted(f"{each.bom_ref.value} {each.hashes}" for each in components))
    bom.serial_number = uuid.uuid5(_NAMESPACE, f"{name} {number} {texts}")
    text = JsonV1Dot6(bom).output_as_string(indent=2)
    if problem := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise SystemExit(f"the bill of materials is not valid: {problem}")
    target = facts / "sboms" / f"{name}.cdx.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(text + "\n")
    return target


def _component(each: BuiltFrom) -> Component:
    purl = PackageURL(each.kind, name=each.name, version=each.version)
    return Component(
        name=each.name,
        version=each.version,
        type=ComponentType.LIBRARY,
        scope=ComponentScope.REQUIRED,
        bom_ref=str(purl),
        purl=purl,
        description=each.part,
    )


def _file(path: Path, wheel: Path) -> Component:
    name = path.relative_to(wheel).as_posix()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Component(
        name=name,
        type=ComponentType.FILE,
        bom_ref=name,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
    )
