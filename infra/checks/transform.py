"""Prints a SAM template as the CloudFormation that it becomes, as JSON, without AWS. Linting the SAM source alone misses wrong
runtimes and wrong properties of what SAM makes of it."""

import json
import os
import sys

from samcli.yamlhelper import yaml_parse
from samtranslator.parser.parser import Parser
from samtranslator.translator.transform import transform


class NoManagedPolicies:
    """The template names roles of its own, so none of AWS's managed policies is looked up."""

    def load(self):
        return {}


def main():
    # SAM wants to know a region, and writes it nowhere
    os.environ.setdefault("AWS_DEFAULT_REGION", "eu-west-1")
    with open(sys.argv[1], encoding="utf-8") as file:
        template = yaml_parse(file.read())
    for resource in template["Resources"].values():
        properties = resource.get("Properties", {})
        if isinstance(properties.get("CodeUri"), str):
            # a folder here is an object of a bucket by the time that CloudFormation sees it
            properties["CodeUri"] = {"Bucket": "packages", "Key": properties["CodeUri"].strip("./")}
    print(json.dumps(transform(template, {}, NoManagedPolicies()), indent=1))


Parser  # SAM's transform wants the module loaded
main()
